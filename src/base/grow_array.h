/*
 * grow_array.h
 *	  Arrays that double when they are full.
 */
#ifndef JOBQ_GROW_ARRAY_H
#define JOBQ_GROW_ARRAY_H

#include "utils/palloc.h"

/*
 * Returns the array with room for twice as many elements, at least 64; NULL: a
 * new one.  *size is their number.
 */
static inline void *
grow_array(MemoryContext context, void *array, int *size, Size elem)
{
	*size = *size ? *size * 2 : 64;
	return array ? repalloc(array, elem * *size) : MemoryContextAlloc(context, elem * *size);
}

#endif
