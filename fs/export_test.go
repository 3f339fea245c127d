package fs

import "tine/fs/transport"

// WrapHandlers puts wrap between the transport and every session that is served from now on.
func WrapHandlers(wrap func(transport.Handler) transport.Handler) { wrapHandler = wrap }
