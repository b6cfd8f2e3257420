/*
 * interval.h
 *	  Intervals of SQL as microseconds.
 */
#ifndef JOBQ_INTERVAL_H
#define JOBQ_INTERVAL_H

/*
 * Returns the length of an interval; a month has 30 days, as in
 * extract(epoch).
 */
extern int64 interval_to_us(const Interval *span);

/* Returns a span of time as text, as interval shows it. */
extern char *span_text(int64 us);

#endif
