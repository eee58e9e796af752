/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shared library exports. The library is compiled with hidden symbols
 * and this file before everything else: only what the public headers declare
 * can be seen from outside, so the headers need no attributes.
 */
#pragma GCC visibility push(default)
#include "nvjournal.h"
#include "nvjournal_user.h"
#pragma GCC visibility pop
