/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies that let those of others in between: see channel.h. */
#include "tier/channel.h"

static int open_stream(
	struct glk_streams *streams, struct CUstream_st **ret, uint32_t *ret_id)
{
	int err = streams->drv->ops->stream_new(streams->drv, streams->device, ret);

	return err ? err : glk_stream_get(streams, *ret, NULL, ret_id);
}

int glk_channel_init(
	struct glk_channel *channel, struct glk_streams *streams, uint32_t *ret_id)
{
	struct glk_drv *drv = streams->drv;
	int device = streams->device, err;

	err = open_stream(streams, &channel->main, ret_id);
	if (!err)
		err = drv->ops->stream_new(drv, device, &channel->side);
	for (int i = 0; i < 2 && !err; i++)
		err = drv->ops->event_new(drv, device, &channel->turn[i]);
	return err;
}

int glk_channel_open_gate(struct glk_channel *channel, struct glk_streams *streams)
{
	int err = open_stream(streams, &channel->gate, &channel->gate_id);

	return err ? err
		   : streams->drv->ops->event_new(
			     streams->drv, streams->device, &channel->passed);
}

int glk_channel_fini(struct glk_channel *channel, struct glk_streams *streams)
{
	struct CUstream_st *handles[] = {channel->side, channel->gate, channel->main};
	struct glk_drv_event *events[] = {
		channel->turn[0], channel->turn[1], channel->passed};
	struct glk_drv *drv = streams ? streams->drv : NULL;
	int err = 0, failed;

	for (int i = 0; i < 3; i++) {
		failed = events[i] ? drv->ops->event_free(drv, events[i]) : 0;
		err = err ? err : failed;
		failed = handles[i]
			? drv->ops->stream_free(drv, streams->device, handles[i])
			: 0;
		err = err ? err : failed;
	}
	return err;
}

/* One stream goes on behind what another has by now. */
static int follow(struct glk_drv *drv, struct CUstream_st *stream,
	struct CUstream_st *other, struct glk_drv_event *event)
{
	int err = drv->ops->event_record(drv, event, other);

	return err ? err : drv->ops->stream_wait(drv, stream, event);
}

int glk_channel_pass(struct glk_channel *channel, struct glk_streams *streams)
{
	struct glk_drv *drv = streams->drv;
	int err = 0;

	if (channel->gated && follow(drv, channel->main, channel->gate, channel->passed))
		err = drv->ops->stream_sync(drv, streams->device, channel->gate);
	channel->gated = err != 0;
	return err;
}

/* Whether a copy goes by the side, for which its turn has come. */
static bool is_turn(struct glk_channel *channel, uint64_t bytes)
{
	uint64_t row = glk_add_relaxed(&channel->in_a_row, bytes) + bytes;

	if (row <= GLK_CHANNEL_TURN)
		return false;
	glk_store_relaxed(&channel->in_a_row, 0);
	return true;
}

/* What another thread queues on the main stream meanwhile may be beside this, and what it waits for is no less. */
static int by_the_side(struct glk_channel *channel, struct glk_drv *drv, int device,
	uint64_t dst, uint64_t src, uint64_t bytes)
{
	int err;

	if (follow(drv, channel->side, channel->main, channel->turn[0]))
		return drv->ops->copy(drv, dst, src, bytes, channel->main);
	err = drv->ops->copy(drv, dst, src, bytes, channel->side);
	/* who waits for the main stream has to find this there: without an event when it has passed */
	if (!err && follow(drv, channel->main, channel->side, channel->turn[1]))
		err = drv->ops->stream_sync(drv, device, channel->side);
	return err;
}

int glk_channel_copy(struct glk_channel *channel, struct glk_drv *drv, int device,
	uint64_t dst, uint64_t src, uint64_t bytes)
{
	int err = 0;

	for (uint64_t at = 0, part; at < bytes && !err; at += part) {
		part = bytes - at < GLK_CHANNEL_TURN ? bytes - at : GLK_CHANNEL_TURN;
		err = is_turn(channel, part)
			? by_the_side(channel, drv, device, dst + at, src + at, part)
			: drv->ops->copy(drv, dst + at, src + at, part, channel->main);
	}
	return err;
}
