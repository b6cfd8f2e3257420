/*
 * trouble.h
 *	  The text for health() that says why jobs do not run.
 */
#ifndef JOBQ_TROUBLE_H
#define JOBQ_TROUBLE_H

#include "shared/shmem.h"

extern void trouble_init(JobqDb *db);
extern void set_trouble(const char *fmt,...) pg_attribute_printf(1, 2);
/* Sets the text from the types and roles that wait, if it has changed. */
extern void trouble_turn(void);

#endif
