/*
 * tenants_in_turn.h
 *	  Tenants take turns in the conductor's work.
 */
#ifndef JOBQ_TENANTS_IN_TURN_H
#define JOBQ_TENANTS_IN_TURN_H

/*
 * Moves up to max of n pieces of work to the front of their array: the first
 * one of each tenant, then the second one of each, and so on.  The others, and
 * those of one tenant, keep their order.  A piece has `size` bytes, and the
 * hash of its tenant at `tenant_at`.
 */
extern void put_tenants_in_turn(void *work, Size size, Size tenant_at, int n, int max);

#endif
