f();
//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozfQ==
//# sourceMappingURL=../maps/main.js.map
