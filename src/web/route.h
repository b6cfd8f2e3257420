/*
 * route.h
 *	  The table of routes, and calls of them.
 *
 * One table drives the router, the checks of arguments, the statements and
 * openapi.json.
 */
#ifndef JOBQ_WEB_ROUTE_H
#define JOBQ_WEB_ROUTE_H

#include "http.h"
#include "pool.h"
#include "query.h"
#include "session.h"

#ifndef JOBQ_WEB_VERSION
#define JOBQ_WEB_VERSION "0.2.0"
#endif

#define MAX_ARGS	24
#define MAX_PATH	4			/* arguments in a path */

/* Columns of jobq.job_types, schedules and workflows that are not shown. */
#define TYPE_HIDDEN		"'{id,owner_oid,run_as_oid,dropped_at}'::text[]"
#define SCHEDULE_HIDDEN	"'{id,owner_oid,ticks_after,waiting_tick,failures,ended_job_id,paused_by_jobq,home_id}'::text[]"
#define WORKFLOW_HIDDEN	"'{type_id,definer_oid}'::text[]"

typedef enum ArgType
{
	ARG_TEXT,
	ARG_INT,
	ARG_BIGINT,
	ARG_NUMBER,
	ARG_BOOL,
	ARG_UUID,
	ARG_INTERVAL,
	ARG_TIME,
	ARG_JSON,
	ARG_TEXTS,					/* text[] */
	ARG_JSONS,					/* jsonb[] */
	ARG_UUIDS,
	ARG_STATUS,					/* jobq.job_status */
	ARG_ACTION,					/* of bulk.c */
	ARG_LEVEL,					/* of an event */
	ARG_SEVERITY,				/* of an alert */
	ARG_SCHEDULE_STATUS,
	ARG_KIND,					/* of a job type */
	ARG_HANDLER,				/* regprocedure */
	ARG_ROLE,					/* regrole */
	ARG_LIMIT,					/* of a list: 1 to 200 */
	ARG_OFFSET,					/* 0 to 10,000 */
	ARG_CURSOR					/* the next of a list */
} ArgType;

typedef enum ArgPlace
{
	IN_NONE,					/* the end of a list of arguments */
	IN_PATH,
	IN_QUERY,
	IN_BODY
} ArgPlace;

typedef struct Arg
{
	const char *name;
	ArgType		type;
	ArgPlace	place;
	bool		required;
	bool		own;			/* not an argument of the SQL function: the
								 * statement names it */
} Arg;

typedef struct Call Call;

typedef enum Shape
{
	SHAPE_VALUE,				/* one row: the body, and its status if it
								 * has a second column */
	SHAPE_LIST,					/* rows of item and key: {items, next} */
	SHAPE_TEXT,					/* one row of text */
	SHAPE_FILE,					/* of the page: not in openapi.json */
	SHAPE_STREAM				/* server-sent events: run begins them */
} Shape;

typedef struct Route
{
	const char *method;
	const char *path;			/* below base_path; {name}: an argument */
	const char *summary;
	Shape		shape;
	const char *sql;			/* statement.h; NULL: run decides */
	const Arg  *args;
	const char *answer;			/* for openapi.json: a name of answers.c, or a
								 * view or function of which it has rows; of
								 * SHAPE_TEXT its media types */
	void		(*run) (Call *call);	/* instead of the statement */
	bool		open;			/* without sign-in */
	bool		local;			/* without PostgreSQL */
	bool		metrics;		/* also at metrics_listen */
	bool		page;			/* browsers get the page */
	bool		redact;			/* hide the keys of the setting redact */
} Route;

struct Call
{
	Request    *request;
	const Route *route;
	char	   *path;			/* decoded in place */
	char	   *query_text;
	Query		query;
	char	   *in_path[MAX_PATH];
	char	   *values[MAX_ARGS];	/* text, or JSON if they came in a body;
									 * NULL: not given */
	bool		given[MAX_ARGS];	/* also if it is null */
	int			nargs;
	int			number[MAX_ARGS];	/* of the statement's parameter that has
									 * the value; 0: none */
	Person	   *person;
	Session    *session;		/* NULL: Basic or a proxy's user; valid until
								 * the first wait */
	char		csrf[TOKEN_LENGTH + 1]; /* of the session, "": none */
	Work	   *work;			/* NULL: none is running */

	/* what the statement gives */
	Buf			items;
	int			rows;
	int			limit;			/* of a list; 0: none */
	char	   *last_key;
	bool		more;
	bool		searching;		/* the list has ended early, for time */
	void		(*finished) (Call *call, const PgError *error);	/* instead of a reply */
	void	   *state;
	void		(*free_state) (Call *call);
};

extern const Route route_table[];
extern const int route_count;
extern const Config *web_config;

/*
 * Finds the route of a path; NULL: none.  allow: the methods that the path
 * has, if only the method is wrong.
 */
extern const Route *route_find(const char *method, char *path, char **in_path, Buf *allow);

/* The value of an argument by name; NULL: not given. */
extern const char *call_value(const Call *call, const char *name);

extern void call_reply(Call *call, int status, const char *type);

#endif
