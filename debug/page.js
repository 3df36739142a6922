'use strict';
// Fetches the page every so often and puts its main part in place of the old
// one. Without this the page is complete, and stands still.
(() => {
	const every = Number(document.body.dataset.refresh);
	const button = document.getElementById('pause');
	const status = document.getElementById('status');
	const main = () => document.getElementById('main');
	const memory = { // of this tab, so that a click on a sort link does not end a pause
		get: () => { try { return sessionStorage.getItem('ration-paused') === 'yes'; } catch { return false; } },
		set: (yes) => { try { sessionStorage.setItem('ration-paused', yes ? 'yes' : 'no'); } catch { /* then not */ } },
	};
	let paused = memory.get();
	let timer = 0;
	let turn = 0; // of fetches that are out, only the last counts

	function show() {
		button.textContent = paused ? 'Resume' : 'Pause';
		button.setAttribute('aria-pressed', String(paused));
		document.body.classList.remove('stale');
		status.textContent = paused ? 'paused' : '';
	}

	function replace(fresh) {
		const old = main();
		for (const open of old.querySelectorAll('details[open][data-key]')) {
			const same = fresh.querySelector('details[data-key="' + CSS.escape(open.dataset.key) + '"]');
			if (!same) continue;
			same.open = true;
			const from = open.querySelector('pre'), to = same.querySelector('pre');
			if (from && to && (from.scrollTop || from.scrollLeft)) {
				const { scrollTop, scrollLeft } = from;
				requestAnimationFrame(() => to.scrollTo(scrollLeft, scrollTop));
			}
		}
		const active = document.activeElement;
		const id = old.contains(active) ? active.id : '';
		const key = old.contains(active) && active.closest('details[data-key]')?.dataset.key;
		old.replaceWith(fresh);
		const again = id ? document.getElementById(id)
			: key && fresh.querySelector('details[data-key="' + CSS.escape(key) + '"] summary');
		if (again) again.focus({ preventScroll: true });
	}

	// Somebody who is copying a stack does not want it to be swapped meanwhile.
	function isSelecting() {
		const s = getSelection();
		return s && !s.isCollapsed && main().contains(s.anchorNode);
	}

	async function refresh() {
		const mine = ++turn;
		try {
			const answer = await fetch(location.href, { cache: 'no-store', redirect: 'error' });
			if (!answer.ok) throw new Error(answer.status + ' ' + answer.statusText);
			const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
			if (mine !== turn || paused) return;
			if (!isSelecting()) {
				replace(page.getElementById('main'));
				document.title = page.title;
			}
			show();
		} catch (e) {
			if (mine !== turn || paused) return;
			document.body.classList.add('stale');
			status.textContent = 'no answer: ' + e.message;
		}
		schedule();
	}

	function schedule() {
		clearTimeout(timer);
		if (!paused && !document.hidden) timer = setTimeout(refresh, every);
	}

	button.addEventListener('click', () => {
		paused = !paused;
		memory.set(paused);
		turn++; // what is out is no longer wanted
		show();
		if (paused) clearTimeout(timer);
		else refresh();
	});
	document.addEventListener('visibilitychange', () => {
		if (document.hidden || paused) clearTimeout(timer);
		else refresh();
	});
	button.hidden = false;
	show();
	schedule();
})();
