/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_TIER_IO_FLOW_H
#define GLK_UNIT_TIER_IO_FLOW_H

/* The most that flows through a small network, by augmenting shortest paths (Edmonds and Karp,
 * "Theoretical improvements in algorithmic efficiency for network flow problems", 1972). */
#include <stdbool.h>
#include <string.h>

#define FLOW_NODES 32

struct flow {
	double left[FLOW_NODES][FLOW_NODES]; /* of what an edge carries; 0: no edge */
};

/* An edge for each node from which it was reached, or -1; whether the sink was. */
static inline bool flow_search(const struct flow *f, int source, int sink, int *from)
{
	int queue[FLOW_NODES], first = 0, last = 0;

	for (int i = 0; i < FLOW_NODES; i++)
		from[i] = -1;
	queue[last++] = source;
	from[source] = source;
	while (first < last && from[sink] < 0) {
		int at = queue[first++];

		for (int i = 0; i < FLOW_NODES; i++) {
			if (from[i] >= 0 || f->left[at][i] < 1e-9)
				continue;
			from[i] = at;
			queue[last++] = i;
		}
	}
	return from[sink] >= 0;
}

static inline double flow_most(struct flow *f, int source, int sink)
{
	double sum = 0, least;
	int from[FLOW_NODES];

	while (flow_search(f, source, sink, from)) {
		least = -1;
		for (int at = sink; at != source; at = from[at])
			if (least < 0 || f->left[from[at]][at] < least)
				least = f->left[from[at]][at];
		for (int at = sink; at != source; at = from[at]) {
			f->left[from[at]][at] -= least;
			f->left[at][from[at]] += least;
		}
		sum += least;
	}
	return sum;
}

/* GPUs with links to the host, some of which share an uplink, and to each other: rates of any unit. */
struct flow_host {
	int gpus, target;
	bool lends[8];
	double link[8], leave[8], come[8], uplink[8];
	int group[8]; /* -1: it shares no uplink */
};

/* The most that can reach the target, or leave it, which is the same. */
static inline double flow_of_host(const struct flow_host *h)
{
	enum { HOST, UPLINK = 1, GPU = 9, GATE = 17 };
	struct flow f;

	memset(&f, 0, sizeof(f));
	for (int i = 0; i < h->gpus; i++) {
		if (!h->lends[i] && i != h->target)
			continue;
		if (h->group[i] >= 0)
			f.left[HOST][UPLINK + h->group[i]] = h->uplink[h->group[i]];
		f.left[h->group[i] >= 0 ? UPLINK + h->group[i] : HOST][GPU + i] =
			h->link[i];
		if (i != h->target)
			f.left[GPU + i][GATE] = h->leave[i];
	}
	f.left[GATE][GPU + h->target] = h->come[h->target];
	return flow_most(&f, HOST, GPU + h->target);
}

#endif
