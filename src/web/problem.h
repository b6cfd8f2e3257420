/*
 * problem.h
 *	  Errors as clients see them: RFC 9457.
 */
#ifndef JOBQ_WEB_PROBLEM_H
#define JOBQ_WEB_PROBLEM_H

#include "http.h"
#include "link.h"

/* Replies with an error of this program's own. */
extern void problem_reply(Request *request, int status, const char *detail);
/* The same, about an argument. */
extern void problem_argument(Request *request, const char *argument, const char *format,...)
			__attribute__((format(printf, 3, 4)));
/* Replies with an error of the server. */
extern void problem_server(Request *request, const PgError *error);
/* The same; argument: the one whose value the server refuses, NULL: the message may name it. */
extern void problem_statement(Request *request, const PgError *error, const char *argument);
/* Writes the error's object; status 0: the one of its SQLSTATE. */
extern void problem_body(Buf *body, int status, const char *detail, const PgError *error, const char *argument);

#endif
