/*
 * worker_start.h
 *	  What a dispatcher tells an executor it registers, in bgw_extra; bgw_main_arg is the slot's number.
 */
#ifndef JOBQ_WORKER_START_H
#define JOBQ_WORKER_START_H

typedef struct WorkerStart
{
	Oid			dboid;
	Oid			roleid;			/* InvalidOid: the bootstrap superuser */
	uint32		generation;		/* of the slot */
} WorkerStart;

#endif
