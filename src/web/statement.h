/*
 * statement.h
 *	  Runs the statement of a route, and makes the reply of its rows.
 *
 * The text of a statement comes from the table of routes alone; values are
 * parameters.  In it
 *	 {args}		are the given arguments of the function, as name => $n::type
 *	 {more}		the same behind other arguments, each after a comma
 *	 {name}		is one argument as $n::type, or a NULL of that type
 */
#ifndef JOBQ_WEB_STATEMENT_H
#define JOBQ_WEB_STATEMENT_H

#include "route.h"

/* Runs the route's statement. */
extern void call_run(Call *call);
/* Runs another one of the program's own. */
extern void call_run_sql(Call *call, const char *sql, bool read_only);
/* Reads with one parameter, $1, and no markers. */
extern void call_run_values(Call *call, const char *sql, const char *value);
/* Reads on a new connection: the password is checked. */
extern void call_run_fresh(Call *call, const char *sql);

/* Replies with the rows of a list. */
extern void call_reply_list(Call *call);
/* Adds the member searched_to of a search that has ended for time. */
extern void add_searched_to(Buf *body, const char *key);
/* Replies with the row of a value. */
extern void call_reply_value(Call *call);
/* Replies with an error of the statement, and names the argument. */
extern void call_reply_error(Call *call, const PgError *error);

#endif
