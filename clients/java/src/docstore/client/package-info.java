/**
 * Fetches documents from several servers of {@code docserviced} over HTTP: {@link docstore.client.Client} sends each
 * call to a healthy server, and to another one if that fails. It needs only the JDK.
 */
package docstore.client;
