/*
 * sign_in.h
 *	  The routes of sessions.
 */
#ifndef JOBQ_WEB_SIGN_IN_H
#define JOBQ_WEB_SIGN_IN_H

#include "route.h"

extern void session_post(Call *call);
extern void session_get(Call *call);
extern void session_delete(Call *call);

#endif
