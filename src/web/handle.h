/*
 * handle.h
 *	  Handles a request: its route, its person, its arguments, its statement.
 */
#ifndef JOBQ_WEB_HANDLE_H
#define JOBQ_WEB_HANDLE_H

#include "http.h"

extern void handle_open(const Config *config);
extern void handle_request(Request *request);

#endif
