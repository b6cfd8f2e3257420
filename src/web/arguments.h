/*
 * arguments.h
 *	  Reads and checks the arguments of a call, as the table of routes has them.
 */
#ifndef JOBQ_WEB_ARGUMENTS_H
#define JOBQ_WEB_ARGUMENTS_H

#include "route.h"

/* The words that a type knows, each in quotes; NULL: any, or the server checks them. */
extern const char *arg_words(ArgType type);
/* Tells filters apart: what was asked for, but for limit and cursor. */
extern uint32_t call_filter_hash(const Call *call);
/* false: the reply says which argument is wrong. */
extern bool call_arguments(Call *call);

#endif
