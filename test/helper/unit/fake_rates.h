/*
 * fake_rates.h
 *	  Fabricated shared memory for rate windows: two databases and a small pool.
 *	  What SQL would answer about earlier starts is a table here.
 */
#ifndef UNIT_FAKE_RATES_H
#define UNIT_FAKE_RATES_H

#include "server.h"

#include "limits/rate_window.h"

#define BLOCKS		300
#define RATES		4

extern Rate rates[RATES];
extern char rate_names[RATES][NAMEDATALEN];
extern bool tables_locked;		/* by another session */
extern bool read_fails;
extern TimestampTz past_starts[100];	/* of all jobs, in rows */
extern int	npast;

/* Makes shared memory anew; the server has run for a long time. */
extern void start_server(void);
extern void stop_server(void);
extern void load(int i, int limit, int64 window_us, int burst);
/* Returns the number of blocks in the windows of a database. */
extern int	blocks_of(const JobqDb *db);
/* True if each block is free or in one window, and no lock is held. */
extern bool no_block_is_lost(void);

#endif
