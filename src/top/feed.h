/*
 * feed.h
 *	  What jobq-top shows: parts, each the rows of one statement.
 */
#ifndef JOBQ_TOP_FEED_H
#define JOBQ_TOP_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

typedef enum PartId
{
	PART_HEALTH, PART_TYPES, PART_WORKERS, PART_WAITING, PART_ERRORS, PART_WHY
} PartId;

#define N_ROUND		PART_WHY	/* the parts of a round */
#define N_PARTS		(PART_WHY + 1)

/* Columns of each part's rows. */
enum
{
	HEALTH_STATUS, HEALTH_CHECK, HEALTH_CHECK_STATUS, HEALTH_MESSAGE
};
enum
{
	TYPE_NAME, TYPE_DUE, TYPE_DUE_EXACT, TYPE_PENDING, TYPE_RUNNING, TYPE_RETRY, TYPE_BLOCKED, TYPE_DEAD, TYPE_FAILURES,
	TYPE_OLDEST_S, TYPE_DRAIN_S, TYPE_PAUSED
};
enum
{
	WORKER_KIND, WORKER_PID, WORKER_NAME, WORKER_STATE, WORKER_JOB, WORKER_TYPE, WORKER_ATTEMPT, WORKER_RUN_S, WORKER_LEFT_S,
	WORKER_RUNNING, WORKER_IDLE
};
enum
{
	WAITING_ID, WAITING_TYPE, WAITING_STATUS, WAITING_PRIORITY, WAITING_TENANT, WAITING_ATTEMPTS, WAITING_AGE_S, WAITING_DUE_S
};
enum
{
	ERROR_TYPE, ERROR_CODE, ERROR_PATTERN, ERROR_N, ERROR_AGE_S, ERROR_JOB
};
enum
{
	WHY_STATUS, WHY_AHEAD, WHY_EXACT, WHY_START_S, WHY_CODE, WHY_MESSAGE, WHY_UNTIL_S, WHY_HOLDER
};

typedef struct Part
{
	PGresult   *rows;			/* NULL: none yet, or an error */
	char	   *error;			/* message, or NULL */
	char		sqlstate[6];
	int64_t		at;				/* of the answer, 0: none yet */
} Part;

extern const char *const part_names[N_PARTS];

extern const Part *feed_part(PartId id);
extern int	part_rows(PartId id);

/* A value as text; NULL is "". */
extern const char *part_value(PartId id, int row, int column);

/* With as_json, each part is one row with the JSON value of the part. */
#define PART_JSON	1
extern void feed_setup(bool as_json);

/* Begins a round, after the running one; all: also the parts that are read less often. */
extern void feed_round(bool all);

/* Asks why the job does not start, after the running statement. */
extern void feed_why(const char *id);

/* Continues; true: something has changed.  The link is stepped by the caller. */
extern bool feed_step(void);

/* The time at which the last round ended, 0: none did. */
extern int64_t feed_at(void);

#endif
