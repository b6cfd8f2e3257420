/*
 * errors.h
 *	  Errors that users see, in one style: argument "priority": 500 is outside -100..100.
 */
#ifndef JOBQ_ERRORS_H
#define JOBQ_ERRORS_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"
#include "utils/resowner.h"

/* Longest interval of an argument; a sum of it and a date is still one. */
#define JOBQ_MAX_INTERVAL_US	(INT64CONST(10000) * 366 * USECS_PER_DAY)

/* Raise 22004, 22003, 22023 or 54000. */
pg_noreturn extern void argument_is_null(const char *argument);
pg_noreturn extern void argument_out_of_range(const char *argument, int64 value, int64 low, int64 high);
/* choices: as they are listed in the message */
pg_noreturn extern void argument_no_choice(const char *argument, const char *value, const char *choices);
pg_noreturn extern void argument_too_long(const char *argument, Size bytes, Size max);
/*
 * Raises 22023 unless the interval is zero or more, finite and not too long.
 */
extern void argument_check_interval(const char *argument, const Interval *span);

/*
 * Returns a value as messages show it: cut to 63 bytes, "?" for control
 * characters.
 */
extern char *argument_shown(const char *value);

/*
 * Returns the bytes of a control character at p, 0 for another.  UTF-8 has
 * further ones, U+0080 to U+009F.
 */
extern int	control_len(const unsigned char *p);
extern bool has_control(const char *text);
extern char *json_shown(Jsonb *value);
extern char *json_value_shown(const JsonbValue *value);

/*
 * In PG_CATCH: raise the caught error again, with the CONTEXT of the caller
 * alone, or with a prefix to its message.  context: holds its copy.
 * Internal errors are raised as they are.
 */
pg_noreturn extern void raise_for_caller(MemoryContext context);
pg_noreturn extern void raise_with_prefix(MemoryContext context, const char *prefix);
/*
 * In PG_CATCH: rolls back the internal subtransaction that the caller began,
 * and raises the caught error again.  An error that leaves an internal
 * subtransaction open keeps the session in a failed transaction.
 * context, owner: those of the caller before it began the subtransaction.
 */
pg_noreturn extern void rethrow_after_rollback(MemoryContext context, ResourceOwner owner);

/* Hints to errors that PostgreSQL raises before any code of jobq runs. */
extern void hints_install_hook(void);

#endif
