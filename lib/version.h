/* SPDX-License-Identifier: MIT */
/* The version that every program of Ordeal says of itself. */
#ifndef ORDEAL_LIB_VERSION_H
#define ORDEAL_LIB_VERSION_H

#define ORDEAL_VERSION "0.1"

#endif
