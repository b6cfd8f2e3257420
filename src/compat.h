/*
 * compat.h
 *	  The only file that knows server versions: the newest API is the name, older servers get a shim.
 */
#ifndef JOBQ_COMPAT_H
#define JOBQ_COMPAT_H

#include "pg_config.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "jobq supports PostgreSQL 15 to 19"
#endif

#endif
