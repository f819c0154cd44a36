/* schema.h - the tables of the store and the steps from each version to the next.
 *
 * A step is run in one transaction that also sets user_version, so a store is at one version or the
 * next, never between. Steps are only ever added at the end.
 */
#ifndef SERVER_SCHEMA_H
#define SERVER_SCHEMA_H

extern const char *const schema_steps[];
extern const int schema_version; /* number of steps: the user_version of an up-to-date store */

#endif
