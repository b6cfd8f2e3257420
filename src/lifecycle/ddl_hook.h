/*
 * ddl_hook.h
 *	  Commands that need the queue's locks, or a database without sessions:
 *	  jobq stops its jobs for them.
 */
#ifndef JOBQ_DDL_HOOK_H
#define JOBQ_DDL_HOOK_H

extern void ddl_install_hooks(void);

#endif
