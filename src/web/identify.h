/*
 * identify.h
 *	  Finds the person that a request comes from, and checks that the request
 *	  was meant.
 */
#ifndef JOBQ_WEB_IDENTIFY_H
#define JOBQ_WEB_IDENTIFY_H

#include "route.h"

/* Sets the person and session of the call; false: the reply says why not. */
extern bool call_identify(Call *call);
/* Refuses what a browser says it sends for another site, but for links that are followed. */
extern bool call_is_of_our_site(Call *call);
/* Refuses what another site may have made a browser send. */
extern bool call_is_meant(Call *call);
/*
 * Finds the person of a role and its password, and begins a counted attempt if
 * the server has not let it in yet; NULL: the reply says why not.
 */
extern Person *sign_in_person(Call *call, const char *database, const char *role, const char *password);

#endif
