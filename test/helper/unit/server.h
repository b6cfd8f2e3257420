/*
 * server.h
 *	  The part of a PostgreSQL server that unit tests of src/ need: memory
 *	  contexts over malloc, hash tables, pairing heaps, lists, errors.
 *
 * An error ends the program.  A program that counts work reads heap_changes
 * and heap_comparisons.  GetCurrentTimestamp() returns clock_now.
 */
#ifndef UNIT_SERVER_H
#define UNIT_SERVER_H

#include "jobq.h"

/* The server's headers replace these by functions of its own library. */
#undef printf
#undef fprintf
#undef vfprintf
#undef snprintf
#undef qsort
#undef strerror

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

extern int64 heap_changes;		/* nodes added to or removed from pairing heaps */
extern int64 heap_comparisons;
extern TimestampTz clock_now;

/* ---------- random numbers ---------- */

/*
 * Returns the number of cases: the program's first argument, or the default.
 * Sets and prints the seed: its second one, or always the same.
 */
extern int	random_start(int argc, char **argv, int cases);
/* Returns a number below n. */
extern int	below(int n);

#endif
