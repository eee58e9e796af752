/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols that the shared library exports. The library is compiled with
 * hidden symbols, and this file comes first. So only the declarations of the
 * public headers are visible outside, and the headers need no attributes.
 */
#pragma GCC visibility push(default)
#include "nvjournal.h"
#include "nvjournal_user.h"
#pragma GCC visibility pop
