/*
 * template.h
 *	  Templates of payloads: JSON with placeholders for data of a run.
 *
 * {"$": path} is the one item of the path; {"$": path, "default": value} is
 * the value, itself a template, if the path finds none; {"$[]": path} is the
 * array of all items.  Placeholders may stand anywhere in objects and arrays.
 *
 * Errors have the SQLSTATE JQ004 (path.h).
 */
#ifndef JOBQ_TEMPLATE_H
#define JOBQ_TEMPLATE_H

#include "workflow/path.h"

/* Calls visit() with the path of each placeholder; JQ004 for a bad one. */
extern void template_paths(Jsonb *template, void (*visit) (void *arg, const JsonbValue *path), void *arg);

#endif
