/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tells what was live and reserved at the moment under the pointer or at the slider. */
"use strict";
(() => {
	const by = (id) => document.getElementById(id);
	const line = JSON.parse(by("data").textContent).timeline;
	const plots = [...document.querySelectorAll("#timeline .over")];
	const cursors = document.querySelectorAll("#timeline .cursor");
	const slider = by("moment"), said = by("said");
	const last = line.at.length - 1;

	const digits = (value) => value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
	/* Values in units of which each is `factor` of the one before. */
	const scaled = (value, factor, units) => {
		let unit = 0;
		while (value >= factor - 0.5 && unit + 1 < units.length) {
			value /= factor;
			unit++;
		}
		return (unit ? digits(value) : value.toFixed(0)) + "\u00a0" + units[unit];
	};
	const bytes = (value) =>
		scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
	const time = (value) => {
		if (line.unit === "events")
			return "event\u00a0" + (value + 1);
		return scaled(value, 1000, ["us", "ms", "s"]);
	};

	/* Figures hold from their event on, until the next. */
	const indexAt = (at) => {
		let low = 0, high = last;
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (line.at[middle] <= at)
				low = middle;
			else
				high = middle - 1;
		}
		return low;
	};
	const show = (index, at) => {
		const live = line.live[index], reserved = line.reserved[index];
		const text = `${time(at)}: live ${bytes(live)}, reserved ${bytes(reserved)}, ` +
			`not in use ${bytes(Math.max(0, reserved - live))}`;
		said.value = text;
		slider.value = index;
		slider.setAttribute("aria-valuetext", text);
		for (const cursor of cursors) {
			cursor.style.left = (at / line.end) * 100 + "%";
			cursor.hidden = false;
		}
	};

	slider.addEventListener("input", () => show(+slider.value, line.at[+slider.value]));
	for (const plot of plots) for (const kind of ["pointermove", "pointerdown"]) {
		plot.addEventListener(kind, (event) => {
			const box = plot.getBoundingClientRect();
			const share = (event.clientX - box.left) / box.width;
			const at = Math.min(1, Math.max(0, share)) * line.end;
			show(indexAt(at), Math.round(at));
		});
	}
	by("moments").hidden = false;
	let peak = 0;
	line.live.forEach((value, i) => {
		if (value > line.live[peak])
			peak = i;
	});
	show(peak, line.at[peak]);
	for (const cursor of cursors)
		cursor.hidden = true;
})();
