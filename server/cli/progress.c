/* progress.c - one line at the bottom of a terminal that shows how far something is. */
#include "server/cli/progress.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/show.h"

enum { BAR_MOST = 40, BAR_LEAST = 8, REDRAW_MS = 100 };

int64_t progress_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct progress progress_make(FILE *out)
{
    return (struct progress){.out = out, .is_terminal = isatty(fileno(out)) == 1};
}

/* Cut UTF-8 text so that it takes at most `columns`. */
static void cut(char *text, int columns)
{
    while (show_width(text) > columns) {
        size_t n = strlen(text) - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xC0U) == 0x80U) {
            n--;
        }
        text[n] = '\0';
    }
}

void progress_compose(char out[1024], int columns, double fraction, const char *left,
                      const char *right)
{
    const bool has_bar = isfinite(fraction) && fraction >= 0.0;
    const double part = fraction > 1.0 ? 1.0 : fraction;
    const int percent = 6; /* "  42%" and a space */
    int bar = columns - show_width(left) - show_width(right) - percent - 5;
    char cells[BAR_MOST + 1] = "";

    if (!has_bar) {
        (void)snprintf(out, 1024, "%s  %s", left, right);
        cut(out, columns);
        return;
    }
    bar = bar > BAR_MOST ? BAR_MOST : bar;
    if (bar >= BAR_LEAST) {
        const int full = (int)(part * bar); /* narrows: 0 to 40 */
        memset(cells, '-', (size_t)bar);
        memset(cells, '#', (size_t)full);
        cells[bar] = '\0';
    }
    (void)snprintf(out, 1024, "%s %s%s%s%3d%%  %s", left, bar >= BAR_LEAST ? "[" : "", cells,
                   bar >= BAR_LEAST ? "] " : "", (int)(part * 100.0), right);
    cut(out, columns);
}

void progress_draw(struct progress *p, double fraction, const char *left, const char *right,
                   bool now)
{
    const int64_t at = progress_now_ms();
    struct winsize size = {0};
    char line[1024];

    if (!p->is_terminal || (!now && p->is_drawn && at - p->drawn_ms < REDRAW_MS)) {
        return;
    }
    const bool known = ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    progress_compose(line, (known ? size.ws_col : 80) - 1, fraction, left, right);
    (void)fprintf(p->out, "\r%s\033[K", line);
    (void)fflush(p->out);
    p->is_drawn = true;
    p->drawn_ms = at;
}

void progress_clear(struct progress *p)
{
    if (p->is_drawn) {
        (void)fputs("\r\033[K", p->out);
        (void)fflush(p->out);
    }
    p->is_drawn = false;
}
