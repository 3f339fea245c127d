package sidecar

// ControlVersion is the newest version of the protocol between tine's processes that this one speaks.
const ControlVersion = 1
