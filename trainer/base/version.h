/* version.h - the version of all of Hone's programs. */
#ifndef TRAINER_BASE_VERSION_H
#define TRAINER_BASE_VERSION_H

#define HONE_VERSION "0.1.0"

#endif
