/*
 * assets.h
 *	  The files of the page, compiled in.
 */
#ifndef JOBQ_WEB_ASSETS_H
#define JOBQ_WEB_ASSETS_H

#include <stddef.h>

#include "route.h"

typedef struct Asset
{
	const char *name;			/* its path below page/ */
	const char *type;
	const char *tag;			/* for ETag */
	const unsigned char *plain;
	size_t		plain_len;
	const unsigned char *packed;	/* gzip */
	size_t		packed_len;
} Asset;

/* Made by src/web/embed; the last one has no name. */
extern const Asset assets[];

/* Routes of SHAPE_FILE. */
extern void page_get(Call *call);
extern void asset_get(Call *call);

/* True if a browser wants to see the page at a path that programs use, too. */
extern bool wants_page(const Call *call);

#endif
