/*
 * plain.h
 *	  /metrics and /livez.
 */
#ifndef JOBQ_WEB_PLAIN_H
#define JOBQ_WEB_PLAIN_H

#include "route.h"

extern void metrics_get(Call *call);
extern void livez_get(Call *call);

#endif
