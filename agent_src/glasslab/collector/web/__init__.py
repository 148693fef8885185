"""The collector's one web page: sessions, a session frame by frame, receipts, detections. It reads and changes nothing.

Rooms: `data` reads the store, `figures` and `receipt` make of it what a page shows, `detections` runs what finds
something, `render` fills the templates in, `login` says who may look, `server` puts HTTP around them.

Everything in a frame may come from a model, a document or an attacker. So there is one way from a value into a page:
`render.PAGES`, which escapes HTML and shows hidden characters as escapes; and no page may run a script but its own.
"""
