/* tokenize.h - `hone-train tokenize`. */
#ifndef TRAINER_TOKENIZE_H
#define TRAINER_TOKENIZE_H

/* argv[0] is "tokenize". Returns the exit status (err.def; 64 for a wrong command line). */
int tokenize_main(int argc, char **argv);

#endif
