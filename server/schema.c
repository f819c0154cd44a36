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

const char *const schema_steps[] = {first, judged};
const int schema_version = sizeof schema_steps / sizeof schema_steps[0];
