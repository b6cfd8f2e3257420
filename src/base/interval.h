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

extern char *interval_text(const Interval *span);
/* Returns a span of time as interval shows it, in hours; days_text: in days. */
extern char *span_text(int64 us);
extern char *days_text(int64 us);
/* Reads an interval; an error if it is none. */
extern Interval *interval_from_text(const char *text);

#endif
