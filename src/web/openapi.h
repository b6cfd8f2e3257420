/*
 * openapi.h
 *	  openapi.json, made from the table of routes.
 */
#ifndef JOBQ_WEB_OPENAPI_H
#define JOBQ_WEB_OPENAPI_H

#include "route.h"

extern void openapi_get(Call *call);

#endif
