/*
 * db_stats.h
 *	  The part of JobqDb with a database's statistics; shmem.h has the table.
 *
 * The counters of a job type are in an entry of its own (stat_store.h).  Here
 * is what the database has once: how far its rows are counted, the changes of
 * prepared transactions, and totals over time.
 */
#ifndef JOBQ_DB_STATS_H
#define JOBQ_DB_STATS_H

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "utils/timestamp.h"

/* Bounds of buckets, in us and attempts: stat_store.c; one more is for all above. */
#define STAT_TIME_BUCKETS		13
#define STAT_ATTEMPT_BUCKETS	6

/* Kinds of failures, in the order of the labels in stat_store.c. */
typedef enum StatFailure
{
	FAILURE_ERROR,
	FAILURE_TIMEOUT,
	FAILURE_EXIT,
	FAILURE_SIGNAL,
	FAILURE_CRASH,
	FAILURE_LEASE,
	FAILURE_OUTPUT,
	FAILURE_OTHER
} StatFailure;
#define STAT_FAILURES (FAILURE_OTHER + 1)

/*
 * What is counted for a job type.  The first four are rows of the queue in
 * the order of JobStatus, the fifth dead letters; the others only rise.
 */
typedef enum StatCounter
{
	STAT_PENDING,
	STAT_BLOCKED,
	STAT_RETRY,
	STAT_RUNNING,
	STAT_DEAD,
	STAT_ENQUEUED,
	STAT_STARTED,
	STAT_COMPLETED,
	STAT_SKIPPED,
	STAT_CANCELLED,
	STAT_DIED,
	STAT_RETRIED,
	STAT_FAILED,				/* the first of STAT_FAILURES */
	STAT_WAIT_US = STAT_FAILED + STAT_FAILURES,
	STAT_WAIT,					/* the first of STAT_TIME_BUCKETS */
	STAT_RUN_US = STAT_WAIT + STAT_TIME_BUCKETS,
	STAT_RUN,					/* the same */
	STAT_ATTEMPTS_SUM = STAT_RUN + STAT_TIME_BUCKETS,
	STAT_ATTEMPTS,				/* the first of STAT_ATTEMPT_BUCKETS */
	STAT_ALERTS_HIGH = STAT_ATTEMPTS + STAT_ATTEMPT_BUCKETS,
	STAT_ALERTS_WARNING,
	STAT_COUNTERS
} StatCounter;
#define STAT_LIVE	(STAT_DEAD + 1)		/* counters of rows */

struct StatEntry;

/* Whether the rows are counted (live_counts.h).  Under JobqDb.mutex. */
typedef enum StatPhase
{
	STAT_UNCOUNTED,
	STAT_COUNTING,				/* by the process `counter` */
	STAT_COUNTED
} StatPhase;

/* Changes of rows by a transaction that the count's snapshot may not see. */
#define STAT_LOGGED	256
typedef struct StatLogged
{
	TransactionId xid;
	struct StatEntry *entry;
	int32		n[STAT_LIVE];
} StatLogged;

/* Changes by a prepared transaction to the counters of one type. */
typedef struct StatPrepared
{
	TransactionId xid;
	struct StatEntry *entry;
	TimestampTz completed;		/* the last one; 0: none */
	TimestampTz failed;
	int64		n[STAT_COUNTERS];
} StatPrepared;

/* Totals of the database in a span of time. */
typedef enum StatTotal
{
	TOTAL_ENQUEUED,
	TOTAL_STARTED,
	TOTAL_COMPLETED,
	TOTAL_FAILED,				/* attempts */
	TOTAL_DIED,
	STAT_TOTALS
} StatTotal;

/* Those since the last reset. */
typedef struct StatTotals
{
	uint64		n[STAT_TOTALS];
	uint64		wait[STAT_TIME_BUCKETS];
} StatTotals;

typedef struct StatSample
{
	TimestampTz since;
	TimestampTz until;			/* 0: none */
	uint32		n[STAT_TOTALS];
	uint32		wait[STAT_TIME_BUCKETS];
} StatSample;

#define STAT_SAMPLE_S	10
#define STAT_SAMPLES	360		/* an hour */
#define STAT_COARSE_S	120
#define STAT_COARSES	720		/* a day */
/* Wake-ups of the dispatcher, by what it found then. */
typedef enum StatWakeup
{
	WAKEUP_COMMIT,
	WAKEUP_REPORT,
	WAKEUP_TIMER,
	WAKEUP_OTHER,
	STAT_WAKEUPS
} StatWakeup;

/* Values of metrics that tables have: read once a minute by maintenance. */
#define STAT_GAUGES	96		/* jobq_internal._gauges() has fewer */
typedef struct StatGauge
{
	char		family[32];
	char		label[128];		/* '': none */
	double		value;
} StatGauge;

/* What limits how many jobs run or start, in the order of stat_limit_kinds. */
typedef enum StatLimitKind
{
	LIMIT_JOBS,					/* jobq.max_concurrent */
	LIMIT_WEIGHT,				/* jobq.max_weight */
	LIMIT_TYPE,					/* max_concurrent of a job type */
	LIMIT_TYPE_RATE,			/* its rate_limit */
	LIMIT_SHARED,				/* max_concurrent of jobq.limits */
	LIMIT_SHARED_RATE,			/* rate_limit of these */
	LIMIT_RUNS,					/* the same two, for runs of workflows */
	LIMIT_RUNS_RATE,
	LIMIT_TENANT,				/* max_running of a tenant that has running or waiting jobs */
	LIMIT_REST,					/* `used` limits have no place */
	LIMIT_KINDS
} StatLimitKind;

/* The name of all that have no place, in views and labels. */
#define STAT_REST	"_other"

#define STAT_LIMITS	128			/* places */
typedef struct StatLimit
{
	uint8		kind;
	char		name[64];
	int32		used;
	int32		max;
	TimestampTz held_since;		/* jobs wait for it since then; 0: none does */
} StatLimit;

/* A lane with a job that is due. */
#define STAT_LANES	256			/* places */
typedef struct StatLane
{
	int32		type_id;		/* 0: lanes that have no place */
	int32		priority;
	int32		effective;
	uint8		held_by;		/* WhyCode; WHY_NCODES: nothing */
	TimestampTz oldest_due;
} StatLane;

#define STAT_UNCLAIMED	10

typedef struct DbStats
{
	/* under JobqShmem->lock */
	bool		has_other;		/* further types share one entry from now on */

	/* under JobqDb.mutex */
	StatPhase	phase;
	pid_t		counter;
	bool		count_spoilt;	/* the count under way has to be repeated */
	bool		count_due;		/* the rows were counted and have to be again */
	TransactionId counted_from; /* the snapshot sees no transaction from here on; invalid: not taken yet */
	int			nlogged;
	StatLogged	logged[STAT_LOGGED];
	int			nprepared;
	StatPrepared *prepared;		/* of STAT_PREPARED */
	int			nunknown;		/* prepared transactions with changes that are not here; */
	TransactionId *unknown;		/* more than max_prepared_xacts: some have ended */
	ConditionVariable counted;	/* broadcast at the end of a count */

	int			ngauges;		/* maintenance writes them */
	StatGauge	gauges[STAT_GAUGES];
	TimestampTz gauges_at;
	int			nlimits;		/* the dispatcher writes these */
	StatLimit	limits[STAT_LIMITS];
	int			nlanes;
	StatLane	lanes[STAT_LANES];
	int			nunclaimed;		/* pull types with due jobs and no claim for a minute */
	int32		unclaimed[STAT_UNCLAIMED];	/* the first of them */

	/* the dispatcher's; plain reads */
	TimestampTz reset_at;
	uint64		handed_out_before;	/* the last reset; of Counters */
	uint64		fallbacks_before;
	StatTotals	sampled;		/* by the last sample; less than none after a reset of a type */
	StatSample	fine[STAT_SAMPLES];
	StatSample	coarse[STAT_COARSES];
	uint64		nfine;			/* samples so far: the next one's place, */
	uint64		ncoarse;		/* modulo the number of places */
	uint64		loops;
	uint64		wakeups[STAT_WAKEUPS];
	uint64		sweep_finds;
	uint64		publications_lost;
} DbStats;

#endif
