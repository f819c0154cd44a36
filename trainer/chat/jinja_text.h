/* jinja_text.h - strings with the origin of their bytes: building, cutting, searching, changing case. */
#ifndef TRAINER_CHAT_JINJA_TEXT_H
#define TRAINER_CHAT_JINJA_TEXT_H

#include "trainer/chat/jinja_value.h"

/* A text under construction; {0} is the empty one. It lies in the arena. */
struct jinja_out {
    char *at;
    size_t n, room;
    struct jinja_run *runs;
    size_t run_count, run_room;
};

int jinja_out_put(struct jinja *j, struct jinja_out *o, const char *s, size_t n,
                  struct jinja_tag tag);
/* Append the string V with its runs; `emit`: as output of the template, written in the present turn. */
int jinja_out_text(struct jinja *j, struct jinja_out *o, struct jinja_value v, bool emit);
/* Append bytes [begin, end) of the string V. */
int jinja_out_cut(struct jinja *j, struct jinja_out *o, struct jinja_value v, size_t begin,
                  size_t end);
/* The finished string; O must not grow afterwards. */
int jinja_out_value(struct jinja *j, const struct jinja_out *o, struct jinja_value *out);

/* Bytes [begin, end) of a string. */
int jinja_cut(struct jinja *j, struct jinja_value v, size_t begin, size_t end,
              struct jinja_value *out);
/* The tag for a result that no longer corresponds byte for byte: that of the first data in it. */
struct jinja_tag jinja_text_tag(struct jinja_value v);

int64_t jinja_characters(const struct jinja_text *t);
/* The byte where character `index` starts; t->n when there are no more. */
size_t jinja_character_at(const struct jinja_text *t, int64_t index);
/* Python's str.isspace for a character. */
bool jinja_is_space(uint32_t c);

/* Bytes of `chars`, or white space when it is UNDEFINED or NONE, taken off the ends. */
enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
int jinja_strip(struct jinja *j, struct jinja_value v, struct jinja_value chars, int ends,
                struct jinja_value *out);
/* The first place at or after `from` where `needle` stands; SIZE_MAX when nowhere. */
size_t jinja_search(const struct jinja_text *t, const struct jinja_text *needle, size_t from);
/* The last place before or at which it ends; SIZE_MAX when nowhere. */
size_t jinja_search_back(const struct jinja_text *t, const struct jinja_text *needle, size_t end);
/* Count the steps of looking from the back, which compares at every place anew. */
int jinja_search_steps(struct jinja *j, const struct jinja_text *t, const struct jinja_text *part);
int jinja_replace(struct jinja *j, struct jinja_value v, struct jinja_value from,
                  struct jinja_value to, int64_t count, struct jinja_value *out);

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_CAPITAL, JINJA_TITLE };
/* JINJA_TITLE is Python's str.title. */
int jinja_change_case(struct jinja *j, struct jinja_value v, enum jinja_case to,
                      struct jinja_value *out);

/* str(v); a string stays as it is, with its runs. */
int jinja_str(struct jinja *j, struct jinja_value v, struct jinja_value *out);
/* What `~` and join write: str(v) at the end of O. */
int jinja_out_str(struct jinja *j, struct jinja_out *o, struct jinja_value v, bool emit);

/* json.dumps as transformers' tojson filter calls it. */
struct jinja_json_style {
    bool ascii, sort;
    const char *indent; /* what one level is indented by; NULL: all on one line */
    size_t indent_bytes;
    struct jinja_value item, key; /* separators; UNDEFINED: Python's */
};
int jinja_to_json(struct jinja *j, struct jinja_value v, const struct jinja_json_style *style,
                  struct jinja_value *out);
/* Python's repr of a float. */
enum { JINJA_FLOAT_ROOM = 40 };
size_t jinja_write_float(char out[JINJA_FLOAT_ROOM], double d);

#endif
