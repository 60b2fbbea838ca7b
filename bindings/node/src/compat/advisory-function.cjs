"use strict";
const { createLeaderElector } = require("./advisory.js");

module.exports = createLeaderElector;
module.exports.createLeaderElector = createLeaderElector;
module.exports.default = createLeaderElector;
