/* text.h - text from outside, made fit to be shown: UTF-8 without control characters. */
#ifndef TRAINER_BASE_TEXT_H
#define TRAINER_BASE_TEXT_H

#include <stddef.h>

/* Bytes of the character at `text`, of which `left` >= 1 bytes are there; 0 when it is not
 * well-formed UTF-8 or is a control character (C0, DEL, C1). */
size_t text_character(const char *text, size_t left);

/* Copy with '?' for every byte that text_character refuses, cut on a character's border when it
 * is too long. */
void text_clean(char *out, size_t size, const char *text);

#endif
