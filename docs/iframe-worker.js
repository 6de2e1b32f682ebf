// Search in pages that are opened from a folder. A browser starts no Worker there, so
// this one runs the script in a hidden frame and passes its messages on.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href).href;
      this.ready = new Promise((done) => (script.onload = done));
      frame.contentDocument.head.append(script);
      this.terminate = () => frame.remove();
    }
    postMessage(data) {
      const message = new MessageEvent("message", { data });
      this.ready.then(() => this.inside.dispatchEvent(message));
    }
  };
}
