/*
 * dispatcher_request.h
 *	  Requests of a transaction, sent after its commit.
 */
#ifndef JOBQ_DISPATCHER_REQUEST_H
#define JOBQ_DISPATCHER_REQUEST_H

/* Asks the launcher to look which databases may have a dispatcher. */
extern void request_database_scan(void);

#endif
