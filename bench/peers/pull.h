/*
 * pull.h
 *	  The parts of the client that claims jobs: pull.c reads options and runs
 *	  threads, pull_hold.c keeps leases.
 */
#ifndef BENCH_PULL_H
#define BENCH_PULL_H

#include "common.h"

/* Renews the leases of so many jobs of the type, each of them every so many seconds. */
extern void hold(const char *kind, int64_t jobs, double every, double seconds);

#endif
