/*
 * json_output.h
 *	  The output of --json.
 */
#ifndef JOBQ_TOP_JSON_OUTPUT_H
#define JOBQ_TOP_JSON_OUTPUT_H

#include "top/text.h"

/* Appends one object of all parts, which feed_setup(true) has made JSON. */
extern void json_output(Buf *out);

#endif
