/* test_cli_sse.c - the reader of server-sent events: the standard's examples, cut anywhere. */
#include <stdlib.h>
#include <string.h>

#include "server/cli/sse.h"
#include "tests/tap.h"

/* What came, as "type|text|id;" one after the other. */
struct seen {
    char text[4096];
    int stop_after;
};

static bool note(void *self, const char *type, const char *text, const char *id)
{
    struct seen *const s = self;
    const size_t used = strlen(s->text);

    (void)snprintf(s->text + used, sizeof s->text - used, "%s|%s|%s;", type, text, id);
    return s->stop_after == 0 || --s->stop_after > 0;
}

/* Feed `stream` in pieces of `piece` bytes; what came is in the returned static text. */
static const char *events(const char *stream, size_t bytes, size_t piece)
{
    static struct seen seen;
    struct sse *const s = sse_new(note, &seen);

    seen = (struct seen){0};
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t n = bytes - at < piece ? bytes - at : piece;
        if (!sse_feed(s, stream + at, n)) {
            break;
        }
    }
    sse_free(s);
    return seen.text;
}

static void the_same_events_however_the_bytes_are_cut(void)
{
    static const char stream[] = ": hello\n\nid: a-1\nevent: metrics\ndata: {\"step\":1}\n\n"
                                 "data: one\ndata:two\r\ndata\r\n\r\nid: a-2\rdata: x\r\r"
                                 "event: nothing\n\nretry: 100\ndata:  y\n\n";
    static const char want[] =
        "metrics|{\"step\":1}|a-1;message|one\ntwo\n|;message|x|a-2;message| y|;";

    for (size_t piece = 1; piece <= sizeof stream; piece++) {
        EXPECT(strcmp(events(stream, sizeof stream - 1, piece), want) == 0);
    }
}

static void a_byte_order_mark_is_skipped_at_the_start_only(void)
{
    static const char stream[] = "\xEF\xBB\xBF"
                                 "data: a\n\n\xEF\xBB\xBF"
                                 "data: b\n\n";

    EXPECT(strcmp(events(stream, sizeof stream - 1, 5), "message|a|;") == 0);
}

static void an_id_with_a_nul_is_ignored(void)
{
    static const char stream[] = "id: 1\ndata: a\n\nid: 2\0x\ndata: b\n\n";

    EXPECT(strcmp(events(stream, sizeof stream - 1, 4), "message|a|1;message|b|;") == 0);
}

static void an_unfinished_event_is_dropped_and_the_id_kept(void)
{
    struct seen seen = {0};
    struct sse *const s = sse_new(note, &seen);

    EXPECT(sse_feed(s, "id: e-7\ndata: a\n\ndata: lo", 24));
    sse_restart(s);
    EXPECT(strcmp(sse_last_id(s), "e-7") == 0);
    EXPECT(sse_feed(s, "data: b\n\n", 9));
    EXPECT(strcmp(seen.text, "message|a|e-7;message|b|;") == 0);
    sse_forget_id(s);
    EXPECT(strcmp(sse_last_id(s), "") == 0);
    sse_free(s);
}

static void the_callback_can_stop(void)
{
    struct seen seen = {.stop_after = 1};
    struct sse *const s = sse_new(note, &seen);

    EXPECT(!sse_feed(s, "data: a\n\ndata: b\n\n", 18));
    EXPECT(strcmp(seen.text, "message|a|;") == 0);
    sse_free(s);
}

static void an_endless_line_is_refused(void)
{
    static char block[1 << 20];
    struct seen seen = {0};
    struct sse *const s = sse_new(note, &seen);
    bool fed = true;

    memset(block, 'x', sizeof block);
    for (int i = 0; fed && i < 64; i++) {
        fed = sse_feed(s, block, sizeof block);
    }
    EXPECT(!fed);
    sse_free(s);
}

int main(void)
{
    RUN(the_same_events_however_the_bytes_are_cut);
    RUN(a_byte_order_mark_is_skipped_at_the_start_only);
    RUN(an_id_with_a_nul_is_ignored);
    RUN(an_unfinished_event_is_dropped_and_the_id_kept);
    RUN(the_callback_can_stop);
    RUN(an_endless_line_is_refused);
    return tap_done();
}
