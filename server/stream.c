/* stream.c - the ring of news and the streams that read it. */
#include "server/stream.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "server/jobs.h"
#include "server/log.h"
#include "trainer/protocol.h"

enum {
    RING = 1024,            /* pieces of news kept                       */
    PENDING_MAX = 64 << 10, /* text made for a stream at a time          */
    REFILL_ROWS = 256,
    PULSE_MS = 100,
    HEARTBEAT_MS = 15000,
    SEND_BUFFER = 128 << 10, /* what a slow reader may hold in the kernel */
};

struct piece {
    int64_t n, user_id;
    char job[RANDOM_ID];
    int topic;           /* bit number in stream_wish.topics                      */
    bool is_private;     /* the job is                                            */
    enum deed deed;      /* what one must be allowed to do with the job           */
    char *text, *others; /* owned; the whole event, and as others than the owner
                          * and admins read it, where that differs                */
    size_t size, others_size;
};

struct stream {
    struct task refill; /* first: the worker finds the stream by it */
    struct stream *link;
    struct streams *all;
    struct stream_wish wish;
    struct MHD_Connection *c;
    int fd;        /* of the connection; -1 before it is known. Open as long as it is suspended */
    int64_t next;  /* number of the event wanted next */
    char *pending; /* owned; text that is on its way  */
    size_t pending_size, pending_sent, pending_room;
    bool suspended, refilling, ending, ended, heartbeat;
    int64_t sent_ms;
};

struct streams {
    struct store *store;
    struct workers *workers;
    int per_user;
    pthread_t pulse;
    pthread_mutex_t lock; /* guards what follows and every stream */
    pthread_cond_t stirred;
    bool shut, closing, fresh;
    struct stream *first;
    int count;
    int64_t newest, covered_from; /* every event from covered_from to newest is in the ring */
    struct piece ring[RING];
    size_t ring_first, ring_count;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int topic_of(const char *type)
{
    return strcmp(type, "job") == 0 ? (int)EVENT_COUNT : (int)event_from_word(type);
}

/* The event as it is sent; NULL without memory. `job` goes into the object of a run's event. */
static char *make_text(const char *epoch, int64_t n, const char *type, const char *job,
                       const char *body, size_t *size)
{
    const size_t room = strlen(body) + 256;
    char *text = malloc(room);
    int used = 0;

    if (text == NULL) {
        return NULL;
    }
    if (strcmp(type, "job") == 0 || body[0] != '{' || body[1] == '}') {
        used = snprintf(text, room, "id: %s-%lld\nevent: %s\ndata: %s\n\n", epoch, (long long)n,
                        type, body);
    } else {
        used = snprintf(text, room, "id: %s-%lld\nevent: %s\ndata: {\"job\":\"%s\",%s\n\n", epoch,
                        (long long)n, type, job, body + 1);
    }
    *size = (size_t)used;
    return text;
}

/* Of what is to be shown: p->text and what goes with it is not looked at. */
static bool wants(const struct stream_wish *w, const struct piece *p)
{
    bool named = w->job_count == 0;

    for (int i = 0; i < w->job_count && !named; i++) {
        named = strcmp(w->jobs[i], p->job) == 0;
    }
    return named && (w->topics == 0 || (w->topics >> p->topic & 1U) != 0) &&
           may_do(&w->who, p->deed, p->user_id, p->is_private);
}

/* Call with the lock held. */
static void wake(struct stream *st)
{
    if (st->suspended) {
        st->suspended = false;
        MHD_resume_connection(st->c);
    }
}

/* Call with the lock held. */
static bool append(struct stream *st, const char *text, size_t size)
{
    if (st->pending == NULL || st->pending_size + size > st->pending_room) {
        const size_t room = (st->pending_size + size) * 2;
        char *more = realloc(st->pending, room);
        if (more == NULL) {
            return false;
        }
        st->pending = more;
        st->pending_room = room;
    }
    memcpy(st->pending + st->pending_size, text, size);
    st->pending_size += size;
    return true;
}

static const struct piece *ring_at(const struct streams *s, size_t i)
{
    return &s->ring[(s->ring_first + i) % RING];
}

/* Place in the ring of the first event numbered `next` or later. Call with the lock held. */
static size_t ring_find(const struct streams *s, int64_t next)
{
    size_t low = 0, high = s->ring_count;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ring_at(s, middle)->n < next) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void streams_publish(void *streams, const struct news *first)
{
    struct streams *s = streams;

    pthread_mutex_lock(&s->lock);
    for (const struct news *item = first; item != NULL; item = item->next) {
        if (s->ring_count == RING) {
            struct piece *oldest = &s->ring[s->ring_first];
            s->covered_from = oldest->n + 1;
            free(oldest->text);
            free(oldest->others);
            s->ring_first = (s->ring_first + 1) % RING;
            s->ring_count--;
        }
        struct piece *p = &s->ring[(s->ring_first + s->ring_count) % RING];
        *p = (struct piece){.n = item->n,
                            .user_id = item->user_id,
                            .is_private = item->is_private,
                            .topic = topic_of(item->type),
                            .deed = job_event_deed(item->type)};
        (void)snprintf(p->job, sizeof p->job, "%s", item->job);
        p->text =
            make_text(store_epoch(s->store), item->n, item->type, item->job, item->body, &p->size);
        if (item->others != NULL) {
            p->others = make_text(store_epoch(s->store), item->n, item->type, item->job,
                                  item->others, &p->others_size);
        }
        s->newest = item->n;
        if (p->text != NULL && (item->others == NULL || p->others != NULL)) {
            s->ring_count++;
        } else { /* no memory: those who want it read the store */
            free(p->text);
            free(p->others);
            s->covered_from = item->n + 1;
        }
    }
    s->fresh = true;
    pthread_cond_signal(&s->stirred);
    pthread_mutex_unlock(&s->lock);
}

/* Append a piece as this stream's reader sees it. Call with the lock held. */
static bool append_piece(struct stream *st, const struct piece *p)
{
    return p->others == NULL || may_do(&st->wish.who, DEED_CHANGE_JOB, p->user_id, true)
               ? append(st, p->text, p->size)
               : append(st, p->others, p->others_size);
}

/* Copy what the ring has for this stream. Call with the lock held. */
static void take_from_ring(struct stream *st)
{
    struct streams *s = st->all;

    for (size_t i = ring_find(s, st->next); i < s->ring_count; i++) {
        const struct piece *p = ring_at(s, i);
        if (wants(&st->wish, p) && (st->pending_size >= PENDING_MAX || !append_piece(st, p))) {
            return; /* the rest comes when this is sent */
        }
        st->next = p->n + 1;
    }
    st->next = s->newest + 1;
}

struct page {
    const struct stream_wish *wish;
    const char *epoch;
    int64_t next; /* in: where to begin; out: where to go on */
    char *text;   /* owned by the caller                     */
    size_t size;
};

static int render_row(sqlite3 *db, sqlite3_stmt *q, struct page *p, struct err *err)
{
    const char *type = db_text(q, 3);
    char *body = NULL;
    size_t size = 0;

    if (strcmp(type, "job") == 0) {
        TRY(job_text(db, sqlite3_column_int64(q, 5), &p->wish->who, &body, err));
    }
    char *text = make_text(p->epoch, sqlite3_column_int64(q, 0), type, db_text(q, 1),
                           body != NULL ? body : db_text(q, 4), &size);
    free(body);
    char *more = text == NULL ? NULL : realloc(p->text, p->size + size);
    if (more == NULL) {
        free(text);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a stream");
    }
    memcpy(more + p->size, text, size);
    free(text);
    p->text = more;
    p->size += size;
    return 0;
}

static bool wants_row(const struct stream_wish *w, sqlite3_stmt *q)
{
    struct piece p = {.user_id = sqlite3_column_int64(q, 2),
                      .is_private = sqlite3_column_int(q, 6) != 0,
                      .topic = topic_of(db_text(q, 3)),
                      .deed = job_event_deed(db_text(q, 3))};

    (void)snprintf(p.job, sizeof p.job, "%s", db_text(q, 1));
    return wants(w, &p);
}

/* The next events of the store that the stream wants. */
static int read_page(sqlite3 *db, void *argument, struct err *err)
{
    struct page *p = argument;
    sqlite3_stmt *q = NULL;
    int64_t newest = 0;
    int rows = 0;
    bool row = true;

    TRY(db_integer(&newest, 0, db, err, "SELECT MAX(n) FROM events", ""));
    TRY(db_query(&q, db, err,
                 "SELECT e.n, j.id, j.user_id, e.type, e.body, j.seq, j.private FROM events e"
                 " JOIN jobs j ON j.seq=e.job_seq WHERE e.n>=? ORDER BY e.n LIMIT ?",
                 "ii", p->next, (int64_t)REFILL_ROWS));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row && p->size < PENDING_MAX) {
        if (wants_row(p->wish, q)) {
            rc = render_row(db, q, p, err);
        }
        if (rc == 0) {
            p->next = sqlite3_column_int64(q, 0) + 1;
            rows++;
            rc = db_next(q, &row, err);
        }
    }
    if (rc == 0 && !row && rows < REFILL_ROWS) {
        p->next = newest + 1;
    }
    sqlite3_finalize(q);
    return rc;
}

/* Whether the client of a suspended connection has closed it; libmicrohttpd does not look. Call with the
 * lock held. */
static bool is_gone(const struct stream *st)
{
    char byte = 0;

    if (!st->suspended || st->fd < 0) {
        return false;
    }
    const ssize_t n = recv(st->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void free_stream(struct stream *st)
{
    free(st->pending);
    free(st);
}

/* On a worker's thread. */
static void refill(struct task *task)
{
    struct stream *st = (struct stream *)task;
    struct streams *s = st->all;
    struct err err = {0};
    struct page p = {.wish = &st->wish, .epoch = store_epoch(s->store), .next = st->next};

    const int rc = store_read(s->store, read_page, &p, &err);
    pthread_mutex_lock(&s->lock);
    st->refilling = false;
    const bool ended = st->ended;
    if (rc != 0 || (p.size > 0 && !append(st, p.text, p.size))) {
        log_line("stream: %s", rc != 0 ? err.text : "no memory");
        st->ending = true; /* the client comes again with the last id it has */
    }
    st->next = p.next;
    wake(st);
    pthread_mutex_unlock(&s->lock);
    free(p.text);
    if (ended) {
        free_stream(st);
    }
}

ssize_t stream_read(void *stream, uint64_t position, char *out, size_t size)
{
    struct stream *st = stream;
    struct streams *s = st->all;
    ssize_t given = 0;

    (void)position;
    pthread_mutex_lock(&s->lock);
    if (st->pending_sent == st->pending_size && !st->ending) {
        st->pending_sent = st->pending_size = 0;
        if (st->heartbeat) {
            st->heartbeat = false;
            (void)append(st, ": hb\n\n", 6); /* without memory the next one comes in time */
        }
        if (!st->refilling && st->next >= s->covered_from) {
            take_from_ring(st);
        }
    }
    if (st->pending_sent < st->pending_size) {
        const size_t left = st->pending_size - st->pending_sent;
        given = (ssize_t)(left < size ? left : size);
        memcpy(out, st->pending + st->pending_sent, (size_t)given);
        st->pending_sent += (size_t)given;
        st->sent_ms = now_ms();
    } else if (st->ending) {
        given = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        st->suspended = true;
        MHD_suspend_connection(st->c);
        if (!st->refilling && st->next < s->covered_from) {
            st->refilling = true;
            st->refill.run = refill;
            if (!workers_add(s->workers, &st->refill)) {
                st->refilling = false;
                st->ending = true;
                wake(st);
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    return given;
}

void stream_end(void *stream)
{
    struct stream *st = stream;
    struct streams *s = st->all;

    pthread_mutex_lock(&s->lock);
    for (struct stream **p = &s->first; *p != NULL; p = &(*p)->link) {
        if (*p == st) {
            *p = st->link;
            s->count--;
            break;
        }
    }
    st->ended = true;
    st->suspended = false;
    const bool refilling = st->refilling; /* then its worker frees it */
    pthread_mutex_unlock(&s->lock);
    if (!refilling) {
        free_stream(st);
    }
}

void stream_attach(struct stream *stream, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int size = SEND_BUFFER;

    if (fd != NULL) {
        (void)setsockopt(fd->connect_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    pthread_mutex_lock(&stream->all->lock);
    stream->c = c;
    stream->fd = fd == NULL ? -1 : fd->connect_fd;
    pthread_mutex_unlock(&stream->all->lock);
}

/* Call with the lock held. */
static void end_if_gone(struct stream *st)
{
    if (is_gone(st)) {
        st->ending = true;
        wake(st);
    }
}

/* Call with the lock held. */
static void greet(struct stream *st)
{
    static const char hello[] = ": hone\nretry: 2000\n\n";
    char text[200];

    (void)append(st, hello, sizeof hello - 1); /* not needed by anybody */
    if (st->wish.reset || st->wish.after > st->all->newest) {
        const int size = snprintf(text, sizeof text, "id: %s-%lld\nevent: reset\ndata: {}\n\n",
                                  store_epoch(st->all->store), (long long)st->all->newest);
        if (!append(st, text, (size_t)size)) {
            st->ending = true;
        }
        st->wish.after = -1;
    }
    st->next = (st->wish.after < 0 ? st->all->newest : st->wish.after) + 1;
}

int stream_begin(struct stream **out, struct streams *s, const struct stream_wish *wish,
                 struct err *err)
{
    struct stream *st = calloc(1, sizeof *st);
    int mine = 0, rc = 0;

    if (st == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a stream");
    }
    st->all = s;
    st->fd = -1;
    st->wish = *wish;
    st->sent_ms = now_ms();
    pthread_mutex_lock(&s->lock);
    for (struct stream *o = s->first; o != NULL; o = o->link) {
        end_if_gone(o);
        mine += !o->ending && o->wish.who.user_id == wish->who.user_id;
    }
    if (s->shut) {
        rc = FAIL(err, ERR_BUSY, "the server is stopping");
    } else if (mine >= s->per_user || s->count >= STREAMS_ALL) {
        rc = FAIL(err, ERR_TOO_MANY, "there are too many open streams (%d of yours, %d in all)",
                  mine, s->count);
    } else {
        greet(st);
        st->link = s->first;
        s->first = st;
        s->count++;
    }
    pthread_mutex_unlock(&s->lock);
    if (rc != 0) {
        free_stream(st);
        return rc;
    }
    *out = st;
    return 0;
}

/* Wake a stream that has something to say. Call with the lock held. */
static void stir(struct stream *st, int64_t now, int64_t clock)
{
    struct streams *s = st->all;

    if (st->wish.who.expires_at != 0 && st->wish.who.expires_at <= clock) {
        st->ending = true;
    }
    end_if_gone(st);
    if (!st->suspended) {
        return;
    }
    if (st->ending) {
        wake(st);
    } else if (now - st->sent_ms >= HEARTBEAT_MS) {
        st->heartbeat = true;
        wake(st);
    } else if (!st->refilling && st->next <= s->newest) {
        if (st->next >= s->covered_from && st->pending_sent == st->pending_size) {
            st->pending_sent = st->pending_size = 0;
            take_from_ring(st); /* wakes nobody for what he may not see */
            if (st->pending_size == 0) {
                return;
            }
        }
        wake(st);
    }
}

static void wait_ms(struct streams *s, int64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&s->stirred, &s->lock, &until);
}

static void *pulse_for_ever(void *argument)
{
    struct streams *s = argument;

    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        s->fresh = false;
        const int64_t now = now_ms(), clock = time(NULL);
        for (struct stream *st = s->first; st != NULL; st = st->link) {
            stir(st, now, clock);
        }
        const int64_t rest = now + PULSE_MS;
        while (!s->closing && !s->shut && now_ms() < rest) {
            wait_ms(s, rest - now_ms());
        }
        if (!s->fresh && !s->closing) {
            wait_ms(s, 1000);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int newest_event(sqlite3 *db, void *argument, struct err *err)
{
    return db_integer(argument, 0, db, err, "SELECT seq FROM sqlite_sequence WHERE name='events'",
                      "");
}

int streams_open(struct streams **out, struct store *store, struct workers *workers, int per_user,
                 struct err *err)
{
    struct streams *s = calloc(1, sizeof *s);
    pthread_condattr_t monotonic;

    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for streams");
    }
    s->store = store;
    s->workers = workers;
    s->per_user = per_user;
    int rc = store_read(store, newest_event, &s->newest, err);
    s->covered_from = s->newest + 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->stirred, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (rc == 0 && pthread_create(&s->pulse, NULL, pulse_for_ever, s) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, "no thread for streams");
    }
    if (rc != 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void streams_revoke(struct streams *s, const struct identity *who)
{
    pthread_mutex_lock(&s->lock);
    for (struct stream *st = s->first; st != NULL; st = st->link) {
        const struct identity *his = &st->wish.who;
        const bool same = who->token_id[0] != '\0'
                              ? strcmp(his->token_id, who->token_id) == 0
                              : his->token_id[0] == '\0' &&
                                    memcmp(his->session, who->session, sizeof who->session) == 0;
        if (same) {
            st->ending = true;
            wake(st);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void streams_revoke_user(struct streams *s, int64_t user_id)
{
    pthread_mutex_lock(&s->lock);
    for (struct stream *st = s->first; st != NULL; st = st->link) {
        if (st->wish.who.user_id == user_id) {
            st->ending = true;
            wake(st);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void streams_shut(struct streams *s)
{
    pthread_mutex_lock(&s->lock);
    s->shut = true;
    for (struct stream *st = s->first; st != NULL; st = st->link) {
        st->ending = true;
        wake(st);
    }
    pthread_mutex_unlock(&s->lock);
}

void streams_close(struct streams *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->stirred);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->pulse, NULL);
    for (size_t i = 0; i < s->ring_count; i++) {
        free(s->ring[(s->ring_first + i) % RING].text);
        free(s->ring[(s->ring_first + i) % RING].others);
    }
    pthread_cond_destroy(&s->stirred);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
