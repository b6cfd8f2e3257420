/*
 * sections.h
 *	  The parts of feed.h as texts and tables.
 */
#ifndef JOBQ_TOP_SECTIONS_H
#define JOBQ_TOP_SECTIONS_H

#include "top/table.h"

typedef enum SectionId
{
	SECTION_TYPES, SECTION_RUNNING, SECTION_WAITING, SECTION_ERRORS
} SectionId;

#define N_SECTIONS	(SECTION_ERRORS + 1)

/* 0 healthy, 1 degraded, 2 unhealthy, 3 unknown. */
extern int	verdict_level(void);

/* The verdict in words; then each failing check: row 0, 1, ...; false: no more. */
extern void verdict_put(Buf *buf);
extern bool verdict_check_put(Buf *buf, int row);

/* The sections, built from the parts as they are. */
extern const Table *sections_build(void);

/* The answer of jobq.why(id), as lines that end with newlines. */
extern void why_put(Buf *buf, const char *id);

#endif
