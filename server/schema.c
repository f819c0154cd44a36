/* schema.c - the tables. Times are whole seconds since 1970 unless a column says otherwise. */
#include "server/schema.h"

static const char first[] =
    "CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " role TEXT NOT NULL CHECK(role IN('admin','member')), disabled INTEGER NOT NULL DEFAULT 0,"
    " created_at INTEGER NOT NULL) STRICT;"

    /* Secrets are kept as SHA-256 only. */
    "CREATE TABLE tokens(id TEXT PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users,"
    " name TEXT NOT NULL, hash BLOB NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,"
    " last_used_at INTEGER) STRICT, WITHOUT ROWID;"
    "CREATE INDEX tokens_of ON tokens(user_id);"
    "CREATE TABLE sessions(hash BLOB PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users,"
    " csrf TEXT NOT NULL, created_at INTEGER NOT NULL, seen_at INTEGER NOT NULL) STRICT, WITHOUT "
    "ROWID;"
    "CREATE TABLE login_codes(hash BLOB PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users,"
    " expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"

    "CREATE TABLE files(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " user_id INTEGER NOT NULL REFERENCES users, filename TEXT NOT NULL, purpose TEXT NOT NULL,"
    " bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;"
    "CREATE INDEX files_of ON files(user_id, seq);"

    /* request: as sent. resolved: every field. inputs: what the references stood for at submit
     * (inputs.h). intent: why a run was told to stop, recorded before the signal. tail_offset: how much
     * of events.jsonl is in the store. */
    "CREATE TABLE jobs(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " user_id INTEGER NOT NULL REFERENCES users, name TEXT NOT NULL, state TEXT NOT NULL,"
    " stage TEXT, stage_done INTEGER, stage_total INTEGER, stage_unit TEXT, reason TEXT,"
    " request TEXT NOT NULL, resolved TEXT NOT NULL, inputs TEXT NOT NULL,"
    " created_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER,"
    " attempt INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,"
    " intent TEXT NOT NULL DEFAULT '', intent_at INTEGER,"
    " step INTEGER NOT NULL DEFAULT 0, total_steps INTEGER, steps_per_s REAL, step_t REAL,"
    " loss REAL, eval_loss REAL, tokens_per_s REAL, parameters INTEGER, memory_bytes INTEGER,"
    " error_code TEXT, error_message TEXT, error_param TEXT,"
    " tail_offset INTEGER NOT NULL DEFAULT 0,"
    " idempotency_key TEXT, body_sha256 TEXT) STRICT;"
    "CREATE INDEX jobs_of ON jobs(user_id, seq);"
    "CREATE INDEX jobs_live ON jobs(state) WHERE state NOT IN('succeeded','failed','cancelled');"
    "CREATE UNIQUE INDEX jobs_key ON jobs(user_id, idempotency_key)"
    " WHERE idempotency_key IS NOT NULL;"
    /* The key's columns come first and in its order: quick_check of SQLite 3.40 is wrong otherwise. */
    "CREATE TABLE job_files(file_id TEXT NOT NULL, job_seq INTEGER NOT NULL REFERENCES jobs,"
    " PRIMARY KEY(file_id, job_seq)) STRICT, WITHOUT ROWID;"

    /* AUTOINCREMENT: a number is never given twice, so a stream can be continued by it. */
    "CREATE TABLE events(n INTEGER PRIMARY KEY AUTOINCREMENT, job_seq INTEGER NOT NULL REFERENCES "
    "jobs,"
    " type TEXT NOT NULL, body TEXT NOT NULL) STRICT;"
    "CREATE INDEX events_of ON events(job_seq, n);"

    /* Level 0 of a curve is a point as reported; a bucket of level L covers 16^L steps. */
    "CREATE TABLE curve(job_seq INTEGER NOT NULL REFERENCES jobs, level INTEGER NOT NULL,"
    " bucket INTEGER NOT NULL, n INTEGER NOT NULL, last_step INTEGER NOT NULL,"
    " loss_n INTEGER NOT NULL, loss_sum REAL NOT NULL, loss_min REAL, loss_max REAL,"
    " norm_n INTEGER NOT NULL, norm_sum REAL NOT NULL, lr REAL, speed_sum REAL NOT NULL,"
    " PRIMARY KEY(job_seq, level, bucket)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE evals(job_seq INTEGER NOT NULL REFERENCES jobs, step INTEGER NOT NULL, loss REAL,"
    " PRIMARY KEY(job_seq, step)) STRICT, WITHOUT ROWID;"

    "CREATE TABLE checkpoints(job_seq INTEGER NOT NULL REFERENCES jobs, step INTEGER NOT NULL,"
    " dir TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, final INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL, PRIMARY KEY(job_seq, step)) STRICT, WITHOUT ROWID;";

/* Accuracy beside the loss of an evaluation; the best checkpoint of a run. */
static const char judged[] = "ALTER TABLE evals ADD COLUMN accuracy REAL;"
                             "ALTER TABLE checkpoints ADD COLUMN best INTEGER NOT NULL DEFAULT 0;";

/* Several people, several devices. Limits of users are NULL where the settings' count. */
static const char shared[] =
    "CREATE TABLE new_users(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " role TEXT NOT NULL CHECK(role IN('admin','member','viewer')),"
    " disabled INTEGER NOT NULL DEFAULT 0, created_at INTEGER NOT NULL,"
    " weight REAL NOT NULL DEFAULT 1, max_devices INTEGER, max_running INTEGER, max_queued INTEGER)"
    " STRICT;"
    "INSERT INTO new_users(id, name, role, disabled, created_at)"
    " SELECT id, name, role, disabled, created_at FROM users;"
    "DROP TABLE users;"
    "ALTER TABLE new_users RENAME TO users;"

    /* class: a word of queue_class_word. device_bytes: on each device, as planned. ticket_at, line: the
     * order of queue.h. ran_s: seconds of running since the time limit began to count. retry_at: not before,
     * after a failure. */
    "ALTER TABLE jobs ADD COLUMN class TEXT NOT NULL DEFAULT 'normal';"
    "ALTER TABLE jobs ADD COLUMN devices INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE jobs ADD COLUMN device_bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN time_limit_s INTEGER NOT NULL DEFAULT 604800;"
    "ALTER TABLE jobs ADD COLUMN requeues INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN private INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN begin_at INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN retry_at INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN ticket_at INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN line INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN ran_s INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN warned INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN array_seq INTEGER;"
    "ALTER TABLE jobs ADD COLUMN array_index INTEGER;"
    "ALTER TABLE jobs ADD COLUMN cloned_from TEXT;"
    "UPDATE jobs SET ticket_at=created_at, line=seq;"
    /* How many a user has; whether a client sends the same again. */
    "CREATE INDEX jobs_live_of ON jobs(user_id, state)"
    " WHERE state NOT IN('succeeded','failed','cancelled');"
    "CREATE INDEX jobs_body ON jobs(body_sha256) WHERE body_sha256 IS NOT NULL;"
    "CREATE INDEX jobs_of_array ON jobs(array_seq) WHERE array_seq IS NOT NULL;"

    "CREATE TABLE arrays(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " user_id INTEGER NOT NULL REFERENCES users, name TEXT NOT NULL, request TEXT NOT NULL,"
    " grid TEXT NOT NULL, total INTEGER NOT NULL, max_running INTEGER NOT NULL,"
    " created_at INTEGER NOT NULL, idempotency_key TEXT, body_sha256 TEXT) STRICT;"
    "CREATE UNIQUE INDEX arrays_key ON arrays(user_id, idempotency_key)"
    " WHERE idempotency_key IS NOT NULL;"
    "CREATE TABLE dependencies(job_seq INTEGER NOT NULL REFERENCES jobs, parent_seq INTEGER NOT "
    "NULL"
    " REFERENCES jobs, kind TEXT NOT NULL CHECK(kind IN('after','afterok','afternotok')),"
    " PRIMARY KEY(job_seq, parent_seq)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX dependencies_on ON dependencies(parent_seq);"

    /* devices: their ids with commas. cause: "" for an end as asked or done, else a word of outcome.h. */
    "CREATE TABLE attempts(job_seq INTEGER NOT NULL REFERENCES jobs, n INTEGER NOT NULL,"
    " devices TEXT NOT NULL, device_count INTEGER NOT NULL, started_at INTEGER NOT NULL,"
    " ended_at INTEGER, cause TEXT, rank INTEGER, signal INTEGER, step INTEGER,"
    " PRIMARY KEY(job_seq, n)) STRICT, WITHOUT ROWID;"
    /* The key makes it impossible that two runs hold a device. */
    "CREATE TABLE leases(device TEXT PRIMARY KEY, job_seq INTEGER NOT NULL REFERENCES jobs,"
    " attempt INTEGER NOT NULL, granted_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX leases_of ON leases(job_seq);"
    /* device_s: all device seconds of the user's ended leases; decayed: as of `at`. */
    "CREATE TABLE usage(user_id INTEGER PRIMARY KEY REFERENCES users, device_s INTEGER NOT NULL,"
    " decayed REAL NOT NULL, at INTEGER NOT NULL) STRICT;"
    "CREATE TABLE preemptions(job_seq INTEGER NOT NULL REFERENCES jobs, at INTEGER NOT NULL,"
    " for_seq INTEGER NOT NULL) STRICT;"
    "CREATE INDEX preemptions_of ON preemptions(job_seq, at);"
    "CREATE TABLE quarantine(device TEXT PRIMARY KEY, since INTEGER NOT NULL, reason TEXT NOT NULL,"
    " by_user TEXT) STRICT, WITHOUT ROWID;"
    "CREATE TABLE reservations(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " from_at INTEGER NOT NULL, to_at INTEGER NOT NULL, devices TEXT NOT NULL,"
    " user_id INTEGER REFERENCES users, note TEXT NOT NULL, created_by TEXT NOT NULL,"
    " created_at INTEGER NOT NULL) STRICT;"
    /* What runs on cards of a name needed beyond their plan. */
    "CREATE TABLE margins(card TEXT PRIMARY KEY, bytes INTEGER NOT NULL, learned_at INTEGER NOT "
    "NULL)"
    " STRICT, WITHOUT ROWID;"
    /* Append-only; hash is of the row and the hash before it. */
    "CREATE TABLE audit(n INTEGER PRIMARY KEY AUTOINCREMENT, t INTEGER NOT NULL, user TEXT NOT "
    "NULL,"
    " token TEXT NOT NULL, address TEXT NOT NULL, action TEXT NOT NULL, object TEXT NOT NULL,"
    " result TEXT NOT NULL, hash BLOB NOT NULL) STRICT;";

/* back: why a job is queued again, in words. */
static const char queued[] =
    "ALTER TABLE jobs ADD COLUMN back TEXT;"
    /* All that a scheduling pass reads of a waiting job, so that it reads no rows. */
    "CREATE INDEX jobs_desk ON jobs(seq, user_id, array_seq, class, devices, device_bytes,"
    " ticket_at, line, time_limit_s, ran_s, begin_at, retry_at, preemptible, attempt, state)"
    " WHERE state='queued';";

const char *const schema_steps[] = {first, judged, shared, queued};
const int schema_version = sizeof schema_steps / sizeof schema_steps[0];
